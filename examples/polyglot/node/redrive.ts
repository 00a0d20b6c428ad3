// Enqueue background jobs. This one file is all: copy it.
// Made by `make generate` from the fields of a job.

/** A client or pool of node-postgres. Inside a transaction the job exists after the commit. */
export interface Queryable {
  query(text: string, values: unknown[]): Promise<{ rows: any[] }>;
}

/** Options of a job. An option that is undefined is not sent. */
export interface Options {
  /** Queue. */
  queue?: string;
  /** Do not start before this time. */
  runAt?: Date;
  /** Lower runs first. */
  priority?: number;
  /** Attempts in all. */
  maxAttempts?: number;
  /** Enqueue only one job of this kind with this key. */
  idempotencyKey?: string;
  /** Run jobs with the same key one after another. */
  orderingKey?: string;
  /** Tenant the job belongs to. */
  tenant?: string;
  /** Give up if not done within this time. In seconds. */
  expiresIn?: number;
  /** JSON object for the handler. */
  headers?: Record<string, unknown>;
  /** Do not start for this long. In seconds. */
  delay?: number;
  /** Enqueue only one such job in this time. In seconds. */
  uniqueFor?: number;
  /** Payload fields to compare. */
  uniqueBy?: string[];
  /** If the unique job exists: skip or replace. */
  onConflict?: "skip" | "replace";
  /** Batch the job belongs to. */
  batch?: string | number | bigint;
}

const ARGUMENTS: Record<keyof Options, string> = {
  queue: "queue => cast($? as text)",
  runAt: "run_at => cast($? as timestamptz)",
  priority: "priority => cast($? as int)",
  maxAttempts: "max_attempts => cast($? as int)",
  idempotencyKey: "idempotency_key => cast($? as text)",
  orderingKey: "ordering_key => cast($? as text)",
  tenant: "tenant => cast($? as text)",
  expiresIn: "expires_in => make_interval(secs => cast($? as double precision))",
  headers: "headers => cast($? as jsonb)",
  delay: "delay => make_interval(secs => cast($? as double precision))",
  uniqueFor: "unique_for => make_interval(secs => cast($? as double precision))",
  uniqueBy: "unique_by => array(select jsonb_array_elements_text(cast($? as jsonb)))",
  onConflict: "on_conflict => cast($? as text)",
  batch: "batch => cast($? as bigint)",
};

/**
 * Add one job and return its id, a bigint in text.
 *
 * If a job with the same key exists, the id is that job's.
 * An error whose `code` is RD001 names the field that cannot be stored.
 */
export async function enqueue(
  db: Queryable,
  kind: string,
  payload: object = {},
  options: Options = {},
): Promise<string> {
  const call = ["kind => cast($1 as text)", "payload => cast($2 as jsonb)"];
  const values: unknown[] = [kind, JSON.stringify(payload)];
  for (const name of Object.keys(options) as (keyof Options)[]) {
    const value = options[name];
    if (value == null) continue;
    if (!(name in ARGUMENTS)) throw new TypeError(`enqueue has no option ${name}`);
    values.push(asText(value));
    call.push(ARGUMENTS[name].replace("$?", `$${values.length}`));
  }
  const { rows } = await db.query(`select redrive.enqueue(${call.join(", ")}) as id`, values);
  return String(rows[0].id);
}

function asText(value: NonNullable<unknown>): string {
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
