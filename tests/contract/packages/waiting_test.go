package shop

import (
	"fmt"
	"os"
	"testing"
	"time"

	"shop/petstoretest"
)

func TestWaits(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := petstoretest.Start(t)
			store.Reset()
			file, err := os.OpenFile("waiting", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(file, os.Getpid(), store.URL)
			time.Sleep(10 * time.Minute)
		})
	}
}
