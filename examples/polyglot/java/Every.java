// java -cp build/java:build/postgresql.jar Every BATCH: enqueue a job with each option, for the test of the producer.
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;

public class Every {
    public static void main(String[] arguments) throws Exception {
        String payload = "{\"text\": \"naïve \\\"quotes\\\"\"}";
        Redrive.Options all = new Redrive.Options()
                .queue("mail")
                .runAt(Instant.parse("2100-01-02T03:04:05Z"))
                .priority(-3)
                .maxAttempts(7)
                .idempotencyKey("key-1")
                .orderingKey("order-1")
                .tenant("acme")
                .expiresIn(Duration.ofMinutes(90))
                .headers("{\"lang\": \"fr\"}")
                .batch(Long.parseLong(arguments[0]));
        Redrive.Options unique = new Redrive.Options()
                .delay(Duration.ofSeconds(1500))
                .uniqueFor(Duration.ofHours(1))
                .uniqueBy(List.of("text"))
                .onConflict("replace");
        try (Connection connection = Place.connect()) {
            for (Redrive.Options options : List.of(all, unique, new Redrive.Options())) {
                Redrive.enqueue(connection, "every.option", payload, options);
            }
            Redrive.enqueue(connection, "every.option", "{}", new Redrive.Options().queue("No Queue"));
        } catch (SQLException error) {
            System.out.println(error.getSQLState() + " " + error.getMessage());
        }
    }
}
