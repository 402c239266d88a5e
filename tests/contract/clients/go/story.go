//go:build ignore

// The story with the Go client of openapi-generator.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"example/petstore"
)

var store = petstore.NewAPIClient(petstore.NewConfiguration())

func main() {
	ctx := withKey(os.Getenv("STORE_API_KEY"))

	pets, response, err := store.PetsAPI.ListPets(ctx).Execute()
	show("list", response, len(pets), err)

	tom := petstore.NewPetInput("Tom", 3)
	tom.SetStatus(petstore.SOLD)
	sold, response, err := store.PetsAPI.CreatePet(ctx).PetInput(*tom).Execute()
	show("create with status", response, sold.GetStatus(), err)
	key := fmt.Sprint("story-", sold.GetId())
	rex := petstore.NewPetInput("Rex", 3)
	pet, response, err := store.PetsAPI.CreatePet(ctx).PetInput(*rex).IdempotencyKey(key).Execute()
	show("create", response, pet.GetStatus(), err)
	again, response, err := store.PetsAPI.CreatePet(ctx).PetInput(*rex).IdempotencyKey(key).Execute()
	show("replay", response, again.GetId() == pet.GetId(), err)
	if response.Header.Get("Idempotent-Replayed") != "true" {
		panic("not replayed")
	}
	_, response, err = store.PetsAPI.CreatePet(ctx).PetInput(*tom).IdempotencyKey(key).Execute()
	show("reused key", response, code(err), nil)

	got, response, err := store.PetsAPI.GetPet(ctx, pet.GetId()).Execute()
	show("get", response, got.GetName(), err)
	_, response, err = store.PetsAPI.GetPet(ctx, 404404).Execute()
	show("get unknown", response, code(err), nil)
	_, response, err = store.PetsAPI.ListPets(withKey("pet_test_x")).Execute()
	show("wrong key", response, code(err), nil)

	order, response, err := store.StoreAPI.PlaceOrder(ctx).OrderInput(*petstore.NewOrderInput(pet.GetId())).Execute()
	show("order", response, order.GetStatus(), err)
	_, response, err = store.StoreAPI.PlaceOrder(ctx).OrderInput(*petstore.NewOrderInput(pet.GetId())).Execute()
	show("order again", response, code(err), nil)
	order, response, err = store.StoreAPI.ApproveOrder(ctx, order.GetId()).Execute()
	show("approve", response, order.GetStatus(), err)
	order, response, err = store.StoreAPI.DeliverOrder(ctx, order.GetId()).Execute()
	show("deliver", response, order.GetStatus(), err)

	message, response, err := store.MessagesAPI.SendMessage(ctx).MessageInput(*petstore.NewMessageInput("Hello")).Execute()
	show("message", response, message.GetStatus(), err)
}

func withKey(key string) context.Context {
	ctx := context.WithValue(context.Background(), petstore.ContextAccessToken, key)
	return context.WithValue(ctx, petstore.ContextServerVariables, map[string]string{
		"storeUrl": os.Getenv("STORE_URL"), "messagesUrl": os.Getenv("MESSAGES_URL"),
	})
}

func show(step string, response *http.Response, value any, err error) {
	if err != nil {
		panic(err)
	}
	fmt.Println(step, response.StatusCode, value)
}

// The code of an error response.
func code(err error) string {
	var failure *petstore.GenericOpenAPIError
	if !errors.As(err, &failure) {
		panic(err)
	}
	return failure.Model().(petstore.Error).Code
}
