// Package redrive enqueues background jobs. This one file is the package: copy it.
//
// Made by `make generate` from the fields of a job.
package redrive

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DB is a pgx.Tx, *pgx.Conn or *pgxpool.Pool. Inside a transaction the job exists after the commit.
type DB interface {
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// Options of a job. A field that has its zero value is not sent.
type Options struct {
	// Queue.
	Queue string
	// Do not start before this time.
	RunAt time.Time
	// Lower runs first.
	Priority int
	// Attempts in all.
	MaxAttempts int
	// Enqueue only one job of this kind with this key.
	IdempotencyKey string
	// Run jobs with the same key one after another.
	OrderingKey string
	// Tenant the job belongs to.
	Tenant string
	// Give up if not done within this time.
	ExpiresIn time.Duration
	// JSON object for the handler.
	Headers map[string]any
	// Do not start for this long.
	Delay time.Duration
	// Enqueue only one such job in this time.
	UniqueFor time.Duration
	// Payload fields to compare.
	UniqueBy []string
	// If the unique job exists: skip or replace.
	OnConflict string
	// Batch the job belongs to.
	Batch int64
}

// Enqueue adds one job and returns its id. The payload becomes a JSON object; nil is an empty one.
// If a job with the same key exists, Enqueue returns the id of that job.
// An error of the SQLSTATE RD001 names the field that cannot be stored.
func Enqueue(ctx context.Context, db DB, kind string, payload any, options Options) (id int64, err error) {
	if payload == nil {
		payload = struct{}{}
	}
	call := "kind => cast($1 as text), payload => cast($2 as jsonb)"
	arguments := []any{kind, payload}
	add := func(given bool, argument string, value any) {
		if given {
			arguments = append(arguments, value)
			call += fmt.Sprintf(", "+argument, len(arguments))
		}
	}
	add(options.Queue != "", "queue => cast($%d as text)", options.Queue)
	add(!options.RunAt.IsZero(), "run_at => cast($%d as timestamptz)", options.RunAt)
	add(options.Priority != 0, "priority => cast($%d as int)", options.Priority)
	add(options.MaxAttempts != 0, "max_attempts => cast($%d as int)", options.MaxAttempts)
	add(options.IdempotencyKey != "", "idempotency_key => cast($%d as text)", options.IdempotencyKey)
	add(options.OrderingKey != "", "ordering_key => cast($%d as text)", options.OrderingKey)
	add(options.Tenant != "", "tenant => cast($%d as text)", options.Tenant)
	add(options.ExpiresIn != 0, "expires_in => make_interval(secs => cast($%d as double precision))", options.ExpiresIn.Seconds())
	add(options.Headers != nil, "headers => cast($%d as jsonb)", options.Headers)
	add(options.Delay != 0, "delay => make_interval(secs => cast($%d as double precision))", options.Delay.Seconds())
	add(options.UniqueFor != 0, "unique_for => make_interval(secs => cast($%d as double precision))", options.UniqueFor.Seconds())
	add(options.UniqueBy != nil, "unique_by => array(select jsonb_array_elements_text(cast($%d as jsonb)))", options.UniqueBy)
	add(options.OnConflict != "", "on_conflict => cast($%d as text)", options.OnConflict)
	add(options.Batch != 0, "batch => cast($%d as bigint)", options.Batch)
	err = db.QueryRow(ctx, "select redrive.enqueue("+call+")", arguments...).Scan(&id)
	return
}
