package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"example/petstore"
)

func retry[T any](call func() (T, *http.Response, error)) (T, *http.Response) {
	for wait := 1; ; wait *= 2 {
		result, response, err := call()
		if err == nil {
			return result, response
		}
		seconds := wait
		if response != nil {
			retryAfter, missing := strconv.Atoi(response.Header.Get("Retry-After"))
			if missing == nil {
				seconds = retryAfter
			} else if response.StatusCode < 500 {
				log.Fatal(err)
			}
		}
		if wait > 8 {
			log.Fatal(err)
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

func main() {
	configuration := petstore.NewConfiguration()
	configuration.Servers = petstore.ServerConfigurations{{URL: os.Getenv("STORE_URL")}}
	store := petstore.NewAPIClient(configuration).PetsAPI
	ctx := context.WithValue(context.Background(), petstore.ContextAccessToken, os.Getenv("STORE_API_KEY"))

	// The key is the same for every attempt, so the animal is added once.
	key := fmt.Sprint("example-", time.Now().UnixNano())
	add := store.CreatePet(ctx).PetInput(*petstore.NewPetInput("Rex", 3)).IdempotencyKey(key)
	added, _ := retry(add.Execute)
	fmt.Println("added", added.Name)

	next := regexp.MustCompile(`after=(\d+)>; rel="next"`)
	for list, more := store.ListPets(ctx), true; more; {
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
