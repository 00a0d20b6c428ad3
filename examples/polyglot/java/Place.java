// java -cp build/java:build/postgresql.jar Place CUSTOMER: place an order and enqueue its confirmation, in one transaction.
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

public class Place {
    static final String ORDER = "insert into orders (customer) values (?) returning id";

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            connection.setAutoCommit(false);
            long order = place(connection, arguments[0]);
            String payload = "{\"order\": " + order + "}";
            Redrive.Options options = new Redrive.Options().queue("mail");
            long job = Redrive.enqueue(connection, "order.confirm", payload, options);
            connection.commit(); // if it fails, there is no order and no job
            System.out.println("order " + order + ", job " + job);
        }
    }

    static Connection connect() throws Exception {
        URI uri = new URI(System.getenv("DATABASE_URL"));
        String jdbc = "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath();
        return DriverManager.getConnection(jdbc, uri.getUserInfo(), "");
    }

    static long place(Connection connection, String customer) throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(ORDER)) {
            prepared.setString(1, customer);
            ResultSet rows = prepared.executeQuery();
            rows.next();
            return rows.getLong(1);
        }
    }
}
