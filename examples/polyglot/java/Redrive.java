// Made by `make generate` from the fields of a job.

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Enqueues background jobs. This one file is all: copy it. */
public final class Redrive {
    private Redrive() {}

    /** Options of a job. An option that was not set is not sent. */
    public static final class Options {
        private final Map<String, Object> arguments = new LinkedHashMap<>();

        private Options set(String argument, Object value) {
            arguments.put(argument, value);
            return this;
        }

        /** Queue. */
        public Options queue(String value) {
            return set("queue => cast(? as text)", value);
        }

        /** Do not start before this time. */
        public Options runAt(Instant value) {
            return set("run_at => cast(? as timestamptz)", value);
        }

        /** Lower runs first. */
        public Options priority(int value) {
            return set("priority => cast(? as int)", value);
        }

        /** Attempts in all. */
        public Options maxAttempts(int value) {
            return set("max_attempts => cast(? as int)", value);
        }

        /** Enqueue only one job of this kind with this key. */
        public Options idempotencyKey(String value) {
            return set("idempotency_key => cast(? as text)", value);
        }

        /** Run jobs with the same key one after another. */
        public Options orderingKey(String value) {
            return set("ordering_key => cast(? as text)", value);
        }

        /** Tenant the job belongs to. */
        public Options tenant(String value) {
            return set("tenant => cast(? as text)", value);
        }

        /** Give up if not done within this time. */
        public Options expiresIn(Duration value) {
            return set("expires_in => make_interval(secs => cast(? as double precision))", value.toNanos() / 1e9);
        }

        /** JSON object for the handler. */
        public Options headers(String value) {
            return set("headers => cast(? as jsonb)", value);
        }

        /** Do not start for this long. */
        public Options delay(Duration value) {
            return set("delay => make_interval(secs => cast(? as double precision))", value.toNanos() / 1e9);
        }

        /** Enqueue only one such job in this time. */
        public Options uniqueFor(Duration value) {
            return set("unique_for => make_interval(secs => cast(? as double precision))", value.toNanos() / 1e9);
        }

        /** Payload fields to compare. */
        public Options uniqueBy(List<String> value) {
            return set("unique_by => cast(? as text[])", value);
        }

        /** If the unique job exists: skip or replace. */
        public Options onConflict(String value) {
            return set("on_conflict => cast(? as text)", value);
        }

        /** Batch the job belongs to. */
        public Options batch(long value) {
            return set("batch => cast(? as bigint)", value);
        }
    }

    /**
     * Adds one job in the connection's transaction and returns its id. The payload is a JSON object.
     *
     * <p>If a job with the same key exists, the id is that job's.
     *
     * @throws SQLException the state RD001 says that the job cannot be stored, and names the field.
     */
    public static long enqueue(Connection connection, String kind, String payload, Options options)
            throws SQLException {
        String call = options.arguments.keySet().stream().map(argument -> ", " + argument).collect(Collectors.joining());
        String statement = "select redrive.enqueue(kind => cast(? as text), payload => cast(? as jsonb)" + call + ")";
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            prepared.setString(1, kind);
            prepared.setString(2, payload);
            int place = 3;
            for (Object value : options.arguments.values()) {
                if (value instanceof List<?> names) {
                    prepared.setArray(place++, connection.createArrayOf("text", names.toArray()));
                } else {
                    prepared.setString(place++, value.toString());
                }
            }
            ResultSet rows = prepared.executeQuery();
            rows.next();
            return rows.getLong(1);
        }
    }
}
