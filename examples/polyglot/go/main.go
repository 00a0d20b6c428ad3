// place CUSTOMER: place an order and enqueue its confirmation, in one transaction.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"place/redrive"
)

func place(ctx context.Context, tx pgx.Tx, customer string) (order int, job int64, err error) {
	err = tx.QueryRow(ctx, "insert into orders (customer) values ($1) returning id", customer).Scan(&order)
	if err != nil {
		return
	}
	payload := map[string]any{"order": order}
	job, err = redrive.Enqueue(ctx, tx, "order.confirm", payload, redrive.Options{Queue: "mail"})
	return
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { // if it fails, there is no order and no job
		order, job, err := place(ctx, tx, os.Args[1])
		if err == nil {
			fmt.Printf("order %d, job %d\n", order, job)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
