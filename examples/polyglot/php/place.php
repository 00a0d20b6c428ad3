<?php
// php place.php CUSTOMER: place an order and enqueue its confirmation, in one transaction.
$url = parse_url(getenv('DATABASE_URL'));
$dsn = "pgsql:host={$url['host']};port={$url['port']};dbname=" . ltrim($url['path'], '/');
$pdo = new PDO($dsn, $url['user'], $url['pass'] ?? null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);

$pdo->beginTransaction();
$placed = $pdo->prepare('insert into orders (customer) values (?) returning id');
$placed->execute([$argv[1]]);
$order = $placed->fetchColumn();
$enqueued = $pdo->prepare("select redrive.enqueue('order.confirm', cast(? as jsonb), queue => 'mail')");
$enqueued->execute([json_encode(['order' => $order])]);
$pdo->commit(); // where it fails there is no order and no job
echo "order $order, job {$enqueued->fetchColumn()}\n";
