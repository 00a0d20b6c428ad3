<?php
// php every.php BATCH: enqueue a job with each option, for the test of the producer.
require __DIR__ . '/redrive.php';

$url = parse_url(getenv('DATABASE_URL'));
$dsn = "pgsql:host={$url['host']};port={$url['port']};dbname=" . ltrim($url['path'], '/');
$pdo = new PDO($dsn, $url['user'], $url['pass'] ?? null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$payload = ['text' => 'naïve "quotes"'];

Redrive\enqueue(
    $pdo, 'every.option', $payload, queue: 'mail', runAt: new DateTimeImmutable('2100-01-02T03:04:05Z'), priority: -3,
    maxAttempts: 7, idempotencyKey: 'key-1', orderingKey: 'order-1', tenant: 'acme', expiresIn: 5400,
    headers: ['lang' => 'fr'], batch: (int) $argv[1],
);
Redrive\enqueue(
    $pdo, 'every.option', $payload, delay: 1500, uniqueFor: 3600, uniqueBy: ['text'], onConflict: 'replace',
);
Redrive\enqueue($pdo, 'every.option', $payload);
try {
    Redrive\enqueue($pdo, 'every.option', queue: 'No Queue');
} catch (PDOException $error) {
    echo $error->getMessage(), "\n";
}
