// The story with openapi-fetch and the types of openapi-typescript.
import createClient from "openapi-fetch";
import type { paths } from "./petstore.js";

const { STORE_URL, MESSAGES_URL, STORE_API_KEY } = process.env;
const client = (baseUrl?: string, key = STORE_API_KEY) =>
  createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const store = client(STORE_URL);
const messages = client(MESSAGES_URL);

const list = await store.GET("/pets");
console.log("list", list.response.status, list.data!.length);

const sold = await store.POST("/pets", { body: { name: "Tom", categoryId: 3, status: "sold" } });
console.log("create with status", sold.response.status, sold.data!.status);
const key = { header: { "Idempotency-Key": crypto.randomUUID() } };
const pet = await store.POST("/pets", { params: key, body: { name: "Rex", categoryId: 3 } });
console.log("create", pet.response.status, pet.data!.status);
const again = await store.POST("/pets", { params: key, body: { name: "Rex", categoryId: 3 } });
console.log("replay", again.response.status, again.data!.id === pet.data!.id);
if (again.response.headers.get("Idempotent-Replayed") !== "true") throw new Error("not replayed");
const reused = await store.POST("/pets", { params: key, body: { name: "Tom", categoryId: 3 } });
console.log("reused key", reused.response.status, reused.error!.code);

const got = await store.GET("/pets/{petId}", { params: { path: { petId: pet.data!.id } } });
console.log("get", got.response.status, got.data!.name);
const missing = await store.GET("/pets/{petId}", { params: { path: { petId: 404_404 } } });
console.log("get unknown", missing.response.status, missing.error!.code);
const unauthorized = await client(STORE_URL, "pet_test_x").GET("/pets");
console.log("wrong key", unauthorized.response.status, unauthorized.error!.code);

const order = await store.POST("/store/orders", { body: { petId: pet.data!.id } });
console.log("order", order.response.status, order.data!.status);
const taken = await store.POST("/store/orders", { body: { petId: pet.data!.id } });
console.log("order again", taken.response.status, taken.error!.code);
const path = { path: { orderId: order.data!.id } };
const approved = await store.POST("/store/orders/{orderId}/approve", { params: path });
console.log("approve", approved.response.status, approved.data!.status);
const delivered = await store.POST("/store/orders/{orderId}/deliver", { params: path });
console.log("deliver", delivered.response.status, delivered.data!.status);

const message = await messages.POST("/messages", { body: { message: "Hello" } });
console.log("message", message.response.status, message.data!.status);
