// riverbench drives River by the protocol of line.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type Noop struct {
	I int    `json:"i"`
	P int    `json:"p,omitempty"`
	S string `json:"s,omitempty"`
}

func (Noop) Kind() string { return "noop" }

type Config struct {
	MaxWorkers int    `json:"max_workers"`
	Work       string `json:"work"`
}

type noopWorker struct {
	river.WorkerDefaults[Noop]
	perform func() error
}

const (
	connections = 10
	cooldown    = time.Millisecond // the shortest there is; one NOTIFY per queue and cooldown
	poll        = 20 * time.Millisecond
	chunk       = 5000 // what River's own benchmark uses
)

var (
	handled, first atomic.Int64
	said           sync.Mutex
)

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func say(format string, values ...any) {
	said.Lock()
	defer said.Unlock()
	fmt.Printf(format+"\n", values...)
}

func (w *noopWorker) Work(_ context.Context, job *river.Job[Noop]) error {
	if handled.Add(1) == 1 {
		first.Store(time.Now().UnixNano())
	}
	if job.Args.P == 1 {
		say(`{"ev":"lat","i":%d,"t":%.6f}`, job.Args.I, now())
	}
	return w.perform()
}

func workOf(config Config) func() error {
	name, text, _ := strings.Cut(config.Work, ":")
	ms, _ := strconv.ParseFloat(text, 64)
	duration := time.Duration(ms * 1e6)
	switch name {
	case "wait":
		return func() error { time.Sleep(duration); return nil }
	case "spin":
		return func() error {
			for end := time.Now().Add(duration); time.Now().Before(end); {
			}
			return nil
		}
	case "fail":
		return func() error { return errors.New("the downstream said no") }
	}
	return func() error { return nil }
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "riverbench:", err)
		os.Exit(1)
	}
	return value
}

func open(ctx context.Context, size int32) *pgxpool.Pool {
	config := must(pgxpool.ParseConfig(os.Getenv("BENCH_URL")))
	config.MaxConns, config.MinConns = size, min(size, 4)
	return must(pgxpool.NewWithConfig(ctx, config))
}

func settings() *river.Config {
	return &river.Config{
		FetchCooldown:     cooldown,
		FetchPollInterval: poll,
		JobTimeout:        -1,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
}

func work(ctx context.Context, config Config) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{perform: workOf(config)})
	options := settings()
	options.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: config.MaxWorkers}}
	options.Workers = workers
	client := must(river.NewClient(riverpgxv5.New(open(ctx, connections)), options))
	say(`{"ev":"run","t":%.6f}`, now())
	must(0, client.Start(ctx))
	report()
}

func report() {
	var last int64
	for toldFirst := false; ; time.Sleep(50 * time.Millisecond) {
		if began := first.Load(); began != 0 && !toldFirst {
			say(`{"ev":"first","t":%.6f}`, float64(began)/1e9)
			toldFirst = true
		}
		if count := handled.Load(); count != last {
			last = count
			say(`{"ev":"n","n":%d,"t":%.6f}`, count, now())
		}
	}
}

func payloads(from, count int) []river.InsertManyParams {
	size, _ := strconv.Atoi(os.Getenv("BENCH_PAYLOAD"))
	filler := strings.Repeat("x", size)
	params := make([]river.InsertManyParams, count)
	for i := range params {
		params[i].Args = Noop{I: from + i, S: filler}
	}
	return params
}

func progress() int {
	text, _ := os.ReadFile(os.Getenv("BENCH_PROGRESS"))
	count, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return count
}

type producer struct {
	ctx    context.Context
	client *river.Client[pgx.Tx]
}

func (p producer) many(from, count int) {
	must(p.client.InsertManyFast(p.ctx, payloads(from, count)))
}

func (p producer) one(args Noop) { must(p.client.Insert(p.ctx, args, nil)) }

func (p producer) probe(i int) {
	called := now()
	p.one(Noop{I: i, P: 1})
	say(`{"ev":"enq","i":%d,"t0":%.6f,"t1":%.6f}`, i, called, now())
}

func (p producer) enqueue(mode string, total int) {
	began := time.Now()
	if mode == "single" {
		for i := range total {
			p.one(Noop{I: i})
		}
	} else {
		for at := 0; at < total; at += chunk {
			p.many(at, min(chunk, total-at))
		}
	}
	say(`{"ev":"enqueued","n":%d,"secs":%.6f}`, total, time.Since(began).Seconds())
}

func (p producer) produce(seconds float64, batch, ahead int) {
	end, made := time.Now().Add(time.Duration(seconds*1e9)), 0
	for time.Now().Before(end) {
		for made-progress() > ahead && time.Now().Before(end) {
			time.Sleep(3 * time.Millisecond)
		}
		p.many(made, batch)
		made += batch
	}
	say(`{"ev":"produced","n":%d}`, made)
}

func (p producer) load(seconds, rate float64) {
	began, made, probes := time.Now(), 0, 0
	for elapsed := 0.0; elapsed < seconds; elapsed = time.Since(began).Seconds() {
		if due := int(elapsed*rate) - made; due > 0 {
			p.many(made, due)
			made += due
		}
		if elapsed*40 >= float64(probes) {
			probes++
			p.probe(1_000_000_000 + probes)
		}
		time.Sleep(10 * time.Millisecond)
	}
	say(`{"ev":"produced","n":%d}`, made)
}

func (p producer) probes(count int, interval float64) {
	for i := range count {
		p.probe(i)
		time.Sleep(time.Duration(interval * (0.75 + 0.5*float64(i*7919%100)/100) * 1e6))
	}
}

func main() {
	ctx, arguments := context.Background(), os.Args[1:]
	number := func(k int) float64 { return must(strconv.ParseFloat(arguments[k], 64)) }
	switch arguments[0] {
	case "setup":
		migrator := must(rivermigrate.New(riverpgxv5.New(open(ctx, 2)), nil))
		must(migrator.Migrate(ctx, rivermigrate.DirectionUp, nil))
		return
	case "chaos-worker":
		chaosWork(ctx, int(number(1)))
		return
	case "chaos-produce":
		chaosProduce(ctx)
		return
	case "worker":
		var config Config
		must(0, json.Unmarshal([]byte(arguments[1]), &config))
		work(ctx, config)
	}
	p := producer{ctx, must(river.NewClient(riverpgxv5.New(open(ctx, 2)), settings()))}
	switch arguments[0] {
	case "enqueue":
		p.enqueue(arguments[1], int(number(2)))
	case "produce":
		p.produce(number(1), int(number(2)), int(number(3)))
	case "load":
		p.load(number(1), number(2))
	case "probe":
		p.probes(int(number(1)), number(2))
	}
}
