// every BATCH: enqueue a job with each option, for the test of the producer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"place/redrive"
)

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	batch, _ := strconv.ParseInt(os.Args[1], 10, 64)
	payload := map[string]any{"text": "naïve \"quotes\""}
	for _, options := range []redrive.Options{
		{
			Queue: "mail", RunAt: time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC), Priority: -3, MaxAttempts: 7,
			IdempotencyKey: "key-1", OrderingKey: "order-1", Tenant: "acme", ExpiresIn: 90 * time.Minute,
			Headers: map[string]any{"lang": "fr"}, Batch: batch,
		},
		{Delay: 1500 * time.Second, UniqueFor: time.Hour, UniqueBy: []string{"text"}, OnConflict: "replace"},
		{},
	} {
		if _, err := redrive.Enqueue(ctx, conn, "every.option", payload, options); err != nil {
			log.Fatal(err)
		}
	}
	_, err = redrive.Enqueue(ctx, conn, "every.option", nil, redrive.Options{Queue: "No Queue"})
	fmt.Println(err)
}
