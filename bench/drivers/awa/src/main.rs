//! awabench drives awa by the protocol of line.py: engine, handlers and producers in Rust.

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use awa::model::insert::params_with;
use awa::{
    Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, insert_with, migrations,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;

const QUEUE: &str = "bench";
const CHUNK: u64 = 5000;
const CONNECTIONS: u32 = 30;
const POLL: Duration = Duration::from_millis(50);
const RARELY: Duration = Duration::from_secs(300); // as awa's own benchmark: statistics for its admin pages

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Serialize, Deserialize, JobArgs)]
struct Noop {
    i: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<u8>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    s: String,
}

#[derive(Deserialize)]
struct Config {
    slots: u32,
    #[serde(default)]
    work: String,
    #[serde(default)]
    quiet: bool,
    #[serde(default)]
    deadline: u64, // seconds; with none, awa keeps claims and completions in batches
}

#[derive(Clone, Copy)]
enum Work {
    Nothing,
    Wait(Duration),
    Spin(Duration),
    Fail,
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<f64> = OnceLock::new();

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970")
        .as_secs_f64()
}

fn work_of(config: &Config) -> Outcome<Work> {
    let (name, ms) = config.work.split_once(':').unwrap_or((&config.work, "0"));
    let time = Duration::from_secs_f64(ms.parse::<f64>()? / 1000.0);
    Ok(match name {
        "wait" => Work::Wait(time),
        "spin" => Work::Spin(time),
        "fail" => Work::Fail,
        _ => Work::Nothing,
    })
}

async fn perform(job: Noop, work: Work) -> Result<JobResult, JobError> {
    FIRST.get_or_init(now);
    HANDLED.fetch_add(1, Relaxed);
    if job.p.is_some() {
        println!("{}", json!({"ev": "lat", "i": job.i, "t": now()}));
    }
    match work {
        Work::Nothing => (),
        Work::Wait(time) => sleep(time).await,
        Work::Spin(time) => {
            let began = Instant::now();
            while began.elapsed() < time {}
        }
        Work::Fail => return Err(JobError::terminal("the downstream said no")),
    }
    Ok(JobResult::Completed)
}

async fn open(connections: u32) -> Outcome<PgPool> {
    let url = std::env::var("BENCH_URL")?;
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .connect(&url)
        .await?)
}

async fn setup() -> Outcome {
    let pool = open(2).await?;
    migrations::run(&pool).await?;
    QueueStorage::new(QueueStorageConfig::default())?
        .install(&pool)
        .await?;
    Ok(())
}

async fn work(config: Config) -> Outcome {
    let work = work_of(&config)?;
    let queue = QueueConfig {
        max_workers: config.slots,
        poll_interval: POLL,
        deadline_duration: Duration::from_secs(config.deadline),
        ..Default::default()
    };
    let client = Client::builder(open(CONNECTIONS).await?)
        .queue(QUEUE, queue)
        .queue_dlq_enabled(QUEUE, true)
        .queue_stats_interval(RARELY)
        .runtime_snapshot_interval(RARELY)
        .register(move |job: Noop, _| perform(job, work))
        .build()?;
    println!("{}", json!({"ev": "run", "t": now()}));
    client.start().await?;
    report(config.quiet).await
}

async fn report(quiet: bool) -> ! {
    let (mut said, mut told_first) = (0, false);
    loop {
        sleep(Duration::from_millis(50)).await;
        let (first, handled) = (FIRST.get(), HANDLED.load(Relaxed));
        if quiet || handled == said {
            continue;
        }
        if let (Some(t), false) = (first, told_first) {
            println!("{}", json!({"ev": "first", "t": t}));
            told_first = true;
        }
        said = handled;
        println!("{}", json!({"ev": "n", "n": handled, "t": now()}));
    }
}

fn options() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.into(),
        ..Default::default()
    }
}

fn progress() -> u64 {
    let path = std::env::var("BENCH_PROGRESS").unwrap_or_default();
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

struct Producer {
    pool: PgPool,
    store: QueueStorage,
    filler: String,
}

impl Producer {
    async fn open() -> Outcome<Self> {
        let size = std::env::var("BENCH_PAYLOAD")
            .ok()
            .and_then(|text| text.parse().ok());
        Ok(Self {
            pool: open(2).await?,
            store: QueueStorage::new(QueueStorageConfig::default())?,
            filler: "x".repeat(size.unwrap_or(0)),
        })
    }

    fn job(&self, i: u64) -> Noop {
        Noop {
            i,
            p: None,
            s: self.filler.clone(),
        }
    }

    async fn one(&self, job: Noop) -> Outcome {
        insert_with(&self.pool, &job, options()).await?;
        Ok(())
    }

    async fn many(&self, from: u64, count: u64) -> Outcome {
        let jobs = (from..from + count)
            .map(|i| params_with(&self.job(i), options()))
            .collect::<Result<Vec<_>, _>>()?;
        self.store.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn probe(&self, i: u64) -> Outcome {
        let called = now();
        self.one(Noop {
            i,
            p: Some(1),
            s: String::new(),
        })
        .await?;
        println!(
            "{}",
            json!({"ev": "enq", "i": i, "t0": called, "t1": now()})
        );
        Ok(())
    }

    async fn enqueue(&self, mode: &str, total: u64) -> Outcome {
        let began = Instant::now();
        if mode == "bulk" {
            for at in (0..total).step_by(CHUNK as usize) {
                self.many(at, CHUNK.min(total - at)).await?;
            }
        } else {
            for i in 0..total {
                self.one(self.job(i)).await?;
            }
        }
        println!(
            "{}",
            json!({"ev": "enqueued", "n": total, "secs": began.elapsed().as_secs_f64()})
        );
        Ok(())
    }

    async fn produce(&self, seconds: f64, batch: u64, ahead: u64) -> Outcome {
        let (end, mut made) = (Instant::now() + Duration::from_secs_f64(seconds), 0);
        while Instant::now() < end {
            while made > progress() + ahead && Instant::now() < end {
                sleep(Duration::from_millis(3)).await;
            }
            self.many(made, batch).await?;
            made += batch;
        }
        println!("{}", json!({"ev": "produced", "n": made}));
        Ok(())
    }

    async fn load(&self, seconds: f64, rate: f64) -> Outcome {
        let (began, mut made, mut probes) = (Instant::now(), 0, 0);
        loop {
            let elapsed = began.elapsed().as_secs_f64();
            if elapsed >= seconds {
                break;
            }
            let due = (elapsed * rate) as u64 - made;
            if due > 0 {
                self.many(made, due).await?;
                made += due;
            }
            if elapsed * 40.0 >= probes as f64 {
                probes += 1;
                self.probe(1_000_000_000 + probes).await?;
            }
            sleep(Duration::from_millis(10)).await;
        }
        println!("{}", json!({"ev": "produced", "n": made}));
        Ok(())
    }

    async fn probes(&self, count: u64, interval: f64) -> Outcome {
        for i in 0..count {
            self.probe(i).await?;
            let jitter = 0.75 + 0.5 * (i * 7919 % 100) as f64 / 100.0; // not in step with anybody who polls
            sleep(Duration::from_secs_f64(interval / 1000.0 * jitter)).await;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["setup"] => setup().await,
        ["worker", config] => work(serde_json::from_str(config)?).await,
        ["enqueue", mode, count] => Producer::open().await?.enqueue(mode, count.parse()?).await,
        ["produce", seconds, batch, ahead] => {
            Producer::open()
                .await?
                .produce(seconds.parse()?, batch.parse()?, ahead.parse()?)
                .await
        }
        ["load", seconds, rate] => {
            Producer::open()
                .await?
                .load(seconds.parse()?, rate.parse()?)
                .await
        }
        ["probe", count, ms] => {
            Producer::open()
                .await?
                .probes(count.parse()?, ms.parse()?)
                .await
        }
        _ => Err(format!("not a command: {arguments:?}").into()),
    }
}
