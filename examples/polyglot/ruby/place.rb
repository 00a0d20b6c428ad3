# ruby place.rb CUSTOMER: place an order and enqueue its confirmation, in one transaction.
require "json"
require "pg"

connection = PG.connect(ENV.fetch("DATABASE_URL"))
order, job = connection.transaction do # where it fails there is no order and no job
  order = connection.exec_params("insert into orders (customer) values ($1) returning id", [ARGV[0]]).getvalue(0, 0)
  payload = JSON.generate({ order: order.to_i })
  job = connection.exec_params("select redrive.enqueue('order.confirm', $1, queue => 'mail')", [payload]).getvalue(0, 0)
  [order, job]
end
puts "order #{order}, job #{job}"
