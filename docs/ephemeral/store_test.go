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

func TestEverySecondRequestFails(t *testing.T) {
	store := petstoretest.Start(t)
	key := store.FailingKey("code=503, every=2")
	first, second := listAnimals(t, store, key), listAnimals(t, store, key)
	if first.StatusCode != 200 || second.StatusCode != 503 {
		t.Fatal(first.Status, second.Status)
	}
}
