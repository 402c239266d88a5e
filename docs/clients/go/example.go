package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"example/petstore"
)

// Returns a success, or a conflict that will not pass.
func retry[T any](call func() (T, *http.Response, error)) (T, *http.Response) {
	for wait := 1; ; wait *= 2 {
		result, response, err := call()
		if err == nil {
			return result, response
		}
		pause, isFinal := time.Duration(wait)*time.Second, false
		// A response below 400 has a body that is cut off or not JSON.
		if response != nil && response.StatusCode >= 400 {
			retryAfter := response.Header.Get("Retry-After")
			if response.StatusCode == http.StatusConflict && retryAfter == "" {
				return result, response
			}
			if response.StatusCode == http.StatusUnauthorized {
				log.Fatal("STORE_API_KEY is not valid: create another key")
			}
			isFinal = response.StatusCode < 500 && retryAfter == ""
			if seconds, err := strconv.Atoi(retryAfter); err == nil {
				pause = time.Duration(seconds) * time.Second
			} else if date, err := http.ParseTime(retryAfter); err == nil {
				pause = time.Until(date)
			}
		}
		if isFinal || wait > 8 {
			var failure *petstore.GenericOpenAPIError
			if errors.As(err, &failure) {
				log.Fatalf("request failed: %v %s", err, failure.Body())
			}
			log.Fatal("request failed: ", err)
		}
		time.Sleep(pause)
	}
}

func main() {
	configuration := petstore.NewConfiguration()
	// For the whole response, with its body.
	configuration.HTTPClient = &http.Client{Timeout: 10 * time.Second}
	client := petstore.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), petstore.ContextAccessToken, os.Getenv("STORE_API_KEY"))
	ctx = context.WithValue(ctx, petstore.ContextServerVariables, map[string]string{
		"storeUrl": os.Getenv("STORE_URL"), "messagesUrl": os.Getenv("MESSAGES_URL"),
	})

	// The key is the same for every attempt, so the animal is added once.
	key := func(step string) string { return fmt.Sprint(step, "-", time.Now().UnixNano()) }
	add := client.PetsAPI.CreatePet(ctx).PetInput(*petstore.NewPetInput("Rex", 3)).IdempotencyKey(key("add"))
	added, _ := retry(add.Execute)
	fmt.Println("added", added.Name)

	order := client.StoreAPI.PlaceOrder(ctx).OrderInput(*petstore.NewOrderInput(added.Id)).IdempotencyKey(key("order"))
	if _, response := retry(order.Execute); response.StatusCode == http.StatusConflict {
		fmt.Println("Rex is gone")
	} else {
		fmt.Println("ordered Rex")
	}

	hello := *petstore.NewMessageInput("Hello")
	message, _ := retry(client.MessagesAPI.SendMessage(ctx).MessageInput(hello).IdempotencyKey(key("send")).Execute)
	fmt.Println("message", message.Status)

	next := regexp.MustCompile(`after=(\d+)>; rel="next"`)
	for list, more := client.PetsAPI.ListPets(ctx), true; more; {
		pets, response := retry(list.Execute)
		for _, pet := range pets {
			fmt.Println(pet.Id, pet.Name)
		}
		link := next.FindStringSubmatch(response.Header.Get("Link"))
		if more = link != nil; more {
			after, _ := strconv.ParseInt(link[1], 10, 64)
			list = list.After(after)
		}
	}
}
