import type { Store } from "./index.js";

export type { Store };

/** A fixture for `test.extend<{ store: Store }>({ store })`: one store for each test file, because Vitest isolates files. */
export const store: [(context: {}, use: (store: Store) => Promise<void>) => Promise<void>, { scope: "worker" }];
