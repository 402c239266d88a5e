// The story with the client of @hey-api/openapi-ts.
import { client } from "./petstore/client.gen";
import * as api from "./petstore";

const { STORE_URL, MESSAGES_URL, STORE_API_KEY } = process.env;
// The client sends every operation to one address by default.
client.setConfig({ baseUrl: STORE_URL, auth: STORE_API_KEY });

async function main() {
  const list = await api.listPets();
  console.log("list", list.response!.status, list.data!.length);

  const sold = await api.createPet({ body: { name: "Tom", categoryId: 3, status: "sold" } });
  console.log("create with status", sold.response!.status, sold.data!.status);
  const headers = { "Idempotency-Key": crypto.randomUUID() };
  const pet = await api.createPet({ headers, body: { name: "Rex", categoryId: 3 } });
  console.log("create", pet.response!.status, pet.data!.status);
  const again = await api.createPet({ headers, body: { name: "Rex", categoryId: 3 } });
  console.log("replay", again.response!.status, again.data!.id === pet.data!.id);
  if (again.response!.headers.get("Idempotent-Replayed") !== "true") throw new Error("not replayed");
  const reused = await api.createPet({ headers, body: { name: "Tom", categoryId: 3 } });
  console.log("reused key", reused.response!.status, reused.error!.code);

  const got = await api.getPet({ path: { petId: pet.data!.id } });
  console.log("get", got.response!.status, got.data!.name);
  const missing = await api.getPet({ path: { petId: 404_404 } });
  console.log("get unknown", missing.response!.status, missing.error!.code);
  const unauthorized = await api.listPets({ auth: "pet_test_x" });
  console.log("wrong key", unauthorized.response!.status, unauthorized.error!.code);

  const order = await api.placeOrder({ body: { petId: pet.data!.id } });
  console.log("order", order.response!.status, order.data!.status);
  const taken = await api.placeOrder({ body: { petId: pet.data!.id } });
  console.log("order again", taken.response!.status, taken.error!.code);
  const path = { orderId: order.data!.id };
  const approved = await api.approveOrder({ path });
  console.log("approve", approved.response!.status, approved.data!.status);
  const delivered = await api.deliverOrder({ path });
  console.log("deliver", delivered.response!.status, delivered.data!.status);

  const message = await api.sendMessage({ baseUrl: MESSAGES_URL, body: { message: "Hello" } });
  console.log("message", message.response!.status, message.data!.status);
}

main();
