// Package petstoretest starts a store for tests.
package petstoretest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Store is a staging store in a temporary folder.
type Store struct {
	URL                string `json:"storeUrl"` // with /v1, as MessagesURL
	MessagesURL        string
	OpsURL, ConsoleURL string
	Key, CustomerKey   string            // API keys of the staff and of the customer
	Keys               map[string]string // API keys of the staff by the names of --prefer NAME=PREFERENCES
	Email              string            // address of the staff, for the console
	CustomerEmail      string
	Password           string // of both accounts
	DataDir            string // for commands such as `petstore orders list --data-dir`
	PID                int
	program            string
	t                  testing.TB
}

// Request is a request in the journal of the operations listener.
type Request struct {
	ID, KeyID                                  int64
	Time                                       time.Time
	Method, Path, RequestID                    string
	Operation, Code, IdempotencyKey, Simulated string // "" if there is none
	Status                                     int    // status of the response, even if it was not sent; 0 if there was none
	Replayed, Incomplete                       bool
	DurationMs                                 float64
	Request, Response                          struct{ Head, Body string }
}

// Start starts `petstore ephemeral` with these options. The program is $PETSTORE, or `petstore` in the path. The store ends
// with the test.
func Start(t testing.TB, options ...string) *Store {
	t.Helper()
	store := &Store{t: t, program: os.Getenv("PETSTORE")}
	if store.program == "" {
		store.program = "petstore"
	}
	command := exec.Command(store.program, append([]string{"ephemeral"}, options...)...)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	store.check(err)
	stdout, err := command.StdoutPipe()
	store.check(err)
	store.check(command.Start())
	t.Cleanup(func() {
		stdin.Close()
		command.Wait()
	})
	store.check(json.NewDecoder(stdout).Decode(store))
	return store
}

// FailingKey creates an API key whose requests fail as preferences say, such as "code=503, first=2".
func (store *Store) FailingKey(preferences string) string {
	store.t.Helper()
	return store.run("key", "create", "--account", store.Email, "--name", "failing", "--prefer", preferences)
}

// Requests returns the requests of the account of key, oldest first. The test fails if the store no longer has all of them,
// because counts would be wrong.
func (store *Store) Requests(key string) []Request {
	store.t.Helper()
	response := store.journal("GET", key)
	defer response.Body.Close()
	if dropped := response.Header.Get("Requests-Dropped"); dropped != "0" {
		store.t.Fatalf("the store has dropped %s requests: reset it more often", dropped)
	}
	var requests []Request
	store.check(json.NewDecoder(response.Body).Decode(&requests))
	return requests
}

// Reset deletes orders, messages and recorded requests, and replaces all animals by the first 30. With "--empty" there are none,
// with "--pets" and a path those of this file.
func (store *Store) Reset(options ...string) {
	store.t.Helper()
	store.run(append([]string{"reset", "--yes"}, options...)...)
	for _, key := range []string{store.Key, store.CustomerKey} {
		store.journal("DELETE", key).Body.Close()
	}
}

func (store *Store) journal(method, key string) *http.Response {
	store.t.Helper()
	request, err := http.NewRequest(method, store.OpsURL+"/requests", nil)
	store.check(err)
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	store.check(err)
	if response.StatusCode >= 300 {
		store.check(fmt.Errorf("%s /requests: %s", method, response.Status))
	}
	return response
}

func (store *Store) run(arguments ...string) string {
	store.t.Helper()
	command := exec.Command(store.program, append(arguments, "--data-dir", store.DataDir)...)
	// Settings in the environment are for another store.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PETSTORE_") {
			command.Env = append(command.Env, variable)
		}
	}
	output, err := command.Output()
	store.check(err)
	return strings.TrimSpace(string(output))
}

func (store *Store) check(err error) {
	store.t.Helper()
	if exit, failed := err.(*exec.ExitError); failed {
		store.t.Fatalf("petstore: %s", exit.Stderr)
	}
	if err != nil {
		store.t.Fatal("petstore: ", err)
	}
}
