<?php
// Enqueue background jobs. This one file is all: copy it.
// Made by `make generate` from the fields of a job.
declare(strict_types=1);

namespace Redrive;

const ARGUMENTS = [
    'queue' => 'queue => cast(? as text)',
    'runAt' => 'run_at => cast(? as timestamptz)',
    'priority' => 'priority => cast(? as int)',
    'maxAttempts' => 'max_attempts => cast(? as int)',
    'idempotencyKey' => 'idempotency_key => cast(? as text)',
    'orderingKey' => 'ordering_key => cast(? as text)',
    'tenant' => 'tenant => cast(? as text)',
    'expiresIn' => 'expires_in => make_interval(secs => cast(? as double precision))',
    'headers' => 'headers => cast(? as jsonb)',
    'delay' => 'delay => make_interval(secs => cast(? as double precision))',
    'uniqueFor' => 'unique_for => make_interval(secs => cast(? as double precision))',
    'uniqueBy' => 'unique_by => array(select jsonb_array_elements_text(cast(? as jsonb)))',
    'onConflict' => 'on_conflict => cast(? as text)',
    'batch' => 'batch => cast(? as bigint)',
];

/**
 * Add one job in the transaction of the connection and return its id.
 *
 * If a job with the same key exists, the id is that job's. A PDOException of the SQLSTATE RD001
 * names the field that cannot be stored. An option that is null is not sent.
 *
 * @param string|null $queue Queue.
 * @param DateTimeInterface|null $runAt Do not start before this time.
 * @param int|null $priority Lower runs first.
 * @param int|null $maxAttempts Attempts in all.
 * @param string|null $idempotencyKey Enqueue only one job of this kind with this key.
 * @param string|null $orderingKey Run jobs with the same key one after another.
 * @param string|null $tenant Tenant the job belongs to.
 * @param float|null $expiresIn Give up if not done within this time. In seconds.
 * @param array|null $headers JSON object for the handler.
 * @param float|null $delay Do not start for this long. In seconds.
 * @param float|null $uniqueFor Enqueue only one such job in this time. In seconds.
 * @param string[]|null $uniqueBy Payload fields to compare.
 * @param string|null $onConflict If the unique job exists: skip or replace.
 * @param int|null $batch Batch the job belongs to.
 */
function enqueue(
    \PDO $db,
    string $kind,
    array|object $payload = [],
    ?string $queue = null,
    ?\DateTimeInterface $runAt = null,
    ?int $priority = null,
    ?int $maxAttempts = null,
    ?string $idempotencyKey = null,
    ?string $orderingKey = null,
    ?string $tenant = null,
    ?float $expiresIn = null,
    ?array $headers = null,
    ?float $delay = null,
    ?float $uniqueFor = null,
    ?array $uniqueBy = null,
    ?string $onConflict = null,
    ?int $batch = null,
): int {
    $call = ['kind => cast(? as text)', 'payload => cast(? as jsonb)'];
    $values = [$kind, \json_encode((object) $payload, \JSON_THROW_ON_ERROR)];
    foreach (ARGUMENTS as $name => $argument) {
        if (($value = $$name) !== null) {
            $call[] = $argument;
            $values[] = match (true) {
                $value instanceof \DateTimeInterface => $value->format('Y-m-d\TH:i:s.uP'),
                $name === 'headers' => \json_encode((object) $value, \JSON_THROW_ON_ERROR),
                \is_array($value) => \json_encode($value, \JSON_THROW_ON_ERROR),
                default => (string) $value,
            };
        }
    }
    $enqueued = $db->prepare('select redrive.enqueue(' . \implode(', ', $call) . ')');
    $enqueued->execute($values);
    return (int) $enqueued->fetchColumn();
}
