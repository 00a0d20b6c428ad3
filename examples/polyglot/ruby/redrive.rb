# Enqueue background jobs. This one file is all: copy it.
# Made by `make generate` from the fields of a job.
require "json"
require "time"

module Redrive
  ARGUMENTS = {
    queue: "queue => cast($? as text)",
    run_at: "run_at => cast($? as timestamptz)",
    priority: "priority => cast($? as int)",
    max_attempts: "max_attempts => cast($? as int)",
    idempotency_key: "idempotency_key => cast($? as text)",
    ordering_key: "ordering_key => cast($? as text)",
    tenant: "tenant => cast($? as text)",
    expires_in: "expires_in => make_interval(secs => cast($? as double precision))",
    headers: "headers => cast($? as jsonb)",
    delay: "delay => make_interval(secs => cast($? as double precision))",
    unique_for: "unique_for => make_interval(secs => cast($? as double precision))",
    unique_by: "unique_by => array(select jsonb_array_elements_text(cast($? as jsonb)))",
    on_conflict: "on_conflict => cast($? as text)",
    batch: "batch => cast($? as bigint)",
  }.freeze

  # Add one job in the transaction of the connection (PG::Connection) and return its id.
  #
  # If a job with the same key exists, the id is that job's. An error of the SQLSTATE RD001
  # names the field that cannot be stored. An option that is nil is not sent:
  #
  # queue:: Queue.
  # run_at:: Do not start before this time. A Time.
  # priority:: Lower runs first.
  # max_attempts:: Attempts in all.
  # idempotency_key:: Enqueue only one job of this kind with this key.
  # ordering_key:: Run jobs with the same key one after another.
  # tenant:: Tenant the job belongs to.
  # expires_in:: Give up if not done within this time. In seconds.
  # headers:: JSON object for the handler.
  # delay:: Do not start for this long. In seconds.
  # unique_for:: Enqueue only one such job in this time. In seconds.
  # unique_by:: Payload fields to compare.
  # on_conflict:: If the unique job exists: skip or replace.
  # batch:: Batch the job belongs to.
  def self.enqueue(connection, kind, payload = {}, **options)
    call = ["kind => cast($1 as text)", "payload => cast($2 as jsonb)"]
    values = [kind, JSON.generate(payload)]
    options.compact.each do |name, value|
      argument = ARGUMENTS.fetch(name) { raise ArgumentError, "enqueue has no option #{name}" }
      values << as_text(value)
      call << argument.sub("$?", "$#{values.size}")
    end
    connection.exec_params("select redrive.enqueue(#{call.join(", ")})", values).getvalue(0, 0).to_i
  end

  def self.as_text(value)
    case value
    when Time then value.iso8601(6)
    when Hash, Array then JSON.generate(value)
    else value.to_s
    end
  end
  private_class_method :as_text
end
