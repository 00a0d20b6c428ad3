# ruby place.rb CUSTOMER: place an order and enqueue its confirmation, in one transaction.
require "pg"
require_relative "redrive"

connection = PG.connect(ENV.fetch("DATABASE_URL"))
order, job = connection.transaction do # if it fails, there is no order and no job
  order = connection.exec_params("insert into orders (customer) values ($1) returning id", [ARGV[0]]).getvalue(0, 0).to_i
  [order, Redrive.enqueue(connection, "order.confirm", { order: order }, queue: "mail")]
end
puts "order #{order}, job #{job}"
