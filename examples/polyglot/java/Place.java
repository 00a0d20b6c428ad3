// java -cp postgresql.jar Place.java CUSTOMER: place an order and enqueue its confirmation, in one transaction.
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

public class Place {
    static final String ORDER = "insert into orders (customer) values (?) returning id";
    static final String JOB = "select redrive.enqueue('order.confirm', cast(? as jsonb), queue => 'mail')";

    public static void main(String[] arguments) throws Exception {
        URI uri = new URI(System.getenv("DATABASE_URL"));
        String jdbc = "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath();
        try (Connection connection = DriverManager.getConnection(jdbc, uri.getUserInfo(), "")) {
            connection.setAutoCommit(false);
            long order = one(connection, ORDER, arguments[0]);
            long job = one(connection, JOB, "{\"order\": " + order + "}");
            connection.commit(); // where it fails there is no order and no job
            System.out.println("order " + order + ", job " + job);
        }
    }

    static long one(Connection connection, String statement, String parameter) throws SQLException {
        try (PreparedStatement prepared = connection.prepareStatement(statement)) {
            prepared.setString(1, parameter);
            ResultSet rows = prepared.executeQuery();
            rows.next();
            return rows.getLong(1);
        }
    }
}
