# ruby every.rb BATCH: enqueue a job with each option, for the test of the producer.
require "pg"
require_relative "redrive"

connection = PG.connect(ENV.fetch("DATABASE_URL"))
payload = { text: 'naïve "quotes"' }
Redrive.enqueue(
  connection, "every.option", payload,
  queue: "mail", run_at: Time.utc(2100, 1, 2, 3, 4, 5), priority: -3, max_attempts: 7, idempotency_key: "key-1",
  ordering_key: "order-1", tenant: "acme", expires_in: 5400, headers: { lang: "fr" }, batch: ARGV[0].to_i
)
Redrive.enqueue(
  connection, "every.option", payload, delay: 1500, unique_for: 3600, unique_by: ["text"], on_conflict: "replace"
)
Redrive.enqueue(connection, "every.option", payload)
begin
  Redrive.enqueue(connection, "every.option", queue: "No Queue")
rescue PG::Error => error
  puts error.result.error_field(PG::Result::PG_DIAG_SQLSTATE), error.message
end
