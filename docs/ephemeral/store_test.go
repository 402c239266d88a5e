package shop

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/exec"
	"testing"
)

var store struct{ StoreURL, MessagesURL, Key, CustomerKey string }

func TestMain(m *testing.M) {
	os.Exit(withStore(m))
}

func withStore(m *testing.M) int {
	command := exec.Command("petstore", "ephemeral")
	command.Stderr = os.Stderr
	stdin, stdinErr := command.StdinPipe()
	stdout, stdoutErr := command.StdoutPipe()
	if stdinErr != nil || stdoutErr != nil {
		log.Fatal(stdinErr, stdoutErr)
	}
	if err := command.Start(); err != nil {
		log.Fatal(err)
	}
	defer command.Wait()
	defer stdin.Close()
	if err := json.NewDecoder(stdout).Decode(&store); err != nil {
		log.Fatal(err)
	}
	return m.Run()
}

func TestStoreHasAnimals(t *testing.T) {
	request, err := http.NewRequest("GET", store.StoreURL+"/pets", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+store.Key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var animals []struct{ Name string }
	if err := json.NewDecoder(response.Body).Decode(&animals); err != nil || animals[0].Name != "Rex" {
		t.Fatal(response.Status, animals, err)
	}
}
