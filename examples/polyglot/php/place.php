<?php
// php place.php CUSTOMER: place an order and enqueue its confirmation, in one transaction.
require __DIR__ . '/redrive.php';

$url = parse_url(getenv('DATABASE_URL'));
$dsn = "pgsql:host={$url['host']};port={$url['port']};dbname=" . ltrim($url['path'], '/');
$pdo = new PDO($dsn, $url['user'], $url['pass'] ?? null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

$pdo->beginTransaction();
$placed = $pdo->prepare('insert into orders (customer) values (?) returning id');
$placed->execute([$argv[1]]);
$order = $placed->fetchColumn();
$job = Redrive\enqueue($pdo, 'order.confirm', ['order' => $order], queue: 'mail');
$pdo->commit(); // if it fails, there is no order and no job
echo "order $order, job $job\n";
