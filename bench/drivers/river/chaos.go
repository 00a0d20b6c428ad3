// What chaos.py says, for River.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

const (
	drain          = 4 * time.Second
	jobTimeout     = 5 * time.Second
	rescueAfter    = 6 * time.Second // has to be longer than a job may take; it is looked for every 30 s
	clockMonotonic = 1
)

type Chaos struct {
	N       int64   `json:"n"`
	Seconds float64 `json:"seconds"`
}

func (Chaos) Kind() string { return "chaos" }

type chaosWorker struct {
	river.WorkerDefaults[Chaos]
	ledger *os.File
}

func (w *chaosWorker) note(phase string, job *river.Job[Chaos]) {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	fmt.Fprintf(w.ledger, "%s %d %d %d %d %d.%09d\n", phase, job.Args.N, job.Attempt, os.Getpid(), os.Getppid(), at.Sec, at.Nsec)
}

func (w *chaosWorker) Work(ctx context.Context, job *river.Job[Chaos]) error {
	w.note("start", job)
	select {
	case <-time.After(time.Duration(job.Args.Seconds * 1e9)):
		w.note("end", job)
		return nil
	case <-ctx.Done():
		w.note("fail", job)
		return ctx.Err()
	}
}

func chaosPool(ctx context.Context, size int32) *pgxpool.Pool {
	config := must(pgxpool.ParseConfig(os.Getenv("CHAOS_URL")))
	config.MaxConns = size
	return must(pgxpool.NewWithConfig(ctx, config))
}

func chaosWork(ctx context.Context, slots int) {
	name := fmt.Sprintf("%s/ledger-%d", os.Getenv("CHAOS_LEDGER"), os.Getpid())
	ledger := must(os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	workers := river.NewWorkers()
	river.AddWorker(workers, &chaosWorker{ledger: ledger})
	options := settings()
	options.JobTimeout = jobTimeout
	options.RescueStuckJobsAfter = rescueAfter
	options.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}
	options.Workers = workers
	client := must(river.NewClient(riverpgxv5.New(chaosPool(ctx, int32(slots)+4)), options))
	must(0, client.Start(ctx))
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	soft, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	if client.Stop(soft) != nil {
		hard, cancel := context.WithTimeout(ctx, drain/2)
		defer cancel()
		client.StopAndCancel(hard)
	}
}

func chaosProduce(ctx context.Context) {
	client := must(river.NewClient(riverpgxv5.New(chaosPool(ctx, 2)), settings()))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var args Chaos
		must(fmt.Sscan(strings.TrimSpace(lines.Text()), &args.N, &args.Seconds))
		soon, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := client.Insert(soon, args, &river.InsertOpts{MaxAttempts: 100}); err == nil {
			fmt.Println(args.N)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
	}
}
