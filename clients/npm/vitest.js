"use strict";

const { startStore } = require("./index.js");

exports.store = [
  async ({}, use) => {
    const store = await startStore();
    await use(store);
    await store.stop();
  },
  { scope: "worker" },
];
