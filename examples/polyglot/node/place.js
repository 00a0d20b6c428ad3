// node place.js CUSTOMER: place an order and enqueue its confirmation, in one transaction.
import pg from "pg";

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query("begin");
  const placed = await client.query("insert into orders (customer) values ($1) returning id", [process.argv[2]]);
  const order = placed.rows[0].id;
  const job = await client.query("select redrive.enqueue('order.confirm', $1, queue => 'mail') as id", [{ order }]);
  await client.query("commit"); // where it fails there is no order and no job
  console.log(`order ${order}, job ${job.rows[0].id}`);
} finally {
  await client.end();
}
