// Package petstoretest starts a store for tests.
package petstoretest

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Store is a staging store in a temporary folder.
type Store struct {
	URL                string `json:"storeUrl"` // with /v1, as MessagesURL
	MessagesURL        string
	OpsURL, ConsoleURL string
	Key, CustomerKey   string // API keys of the staff and of the customer
	Email, Password    string // of the staff, for the console
	DataDir            string // for commands such as `petstore orders list --data-dir`
	program            string
	t                  testing.TB
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

// FailingKey creates an API key whose requests fail as preferences say, such as "code=503, every=2".
func (store *Store) FailingKey(preferences string) string {
	store.t.Helper()
	return store.run("key", "create", "--account", store.Email, "--name", "failing", "--prefer", preferences)
}

// Reset deletes orders and messages, and replaces all animals by the first 30.
func (store *Store) Reset() {
	store.t.Helper()
	store.run("reset", "--yes")
}

func (store *Store) run(arguments ...string) string {
	store.t.Helper()
	command := exec.Command(store.program, append(arguments, "--data-dir", store.DataDir)...)
	// Settings in the environment may name another database, which takes precedence over the folder.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PETSTORE_") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Stderr = os.Stderr
	output, err := command.Output()
	store.check(err)
	return strings.TrimSpace(string(output))
}

func (store *Store) check(err error) {
	store.t.Helper()
	if err != nil {
		store.t.Fatal("petstore: ", err)
	}
}
