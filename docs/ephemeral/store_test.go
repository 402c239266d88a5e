package shop

import (
	"encoding/json"
	"net/http"
	"testing"

	"shop/petstoretest"
)

func listAnimals(t *testing.T, store *petstoretest.Store, key string) *http.Response {
	t.Helper()
	request, err := http.NewRequest("GET", store.URL+"/pets", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestStoreHasAnimals(t *testing.T) {
	store := petstoretest.Start(t)
	response := listAnimals(t, store, store.Key)
	var animals []struct{ Name string }
	if err := json.NewDecoder(response.Body).Decode(&animals); err != nil || animals[0].Name != "Rex" {
		t.Fatal(response.Status, animals, err)
	}
}

func TestFirstRequestFails(t *testing.T) {
	store := petstoretest.Start(t)
	key := store.FailingKey("code=503, first=1")
	listAnimals(t, store, key)
	listAnimals(t, store, key)
	requests := store.Requests(store.Key)
	if len(requests) != 2 || requests[0].Status != 503 || requests[1].Status != 200 {
		t.Fatal(requests)
	}
}
