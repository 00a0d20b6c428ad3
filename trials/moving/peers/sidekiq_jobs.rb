# Sidekiq with the Redis of REDIS_URL: with ruby it enqueues, with sidekiq -r those of the queue critical fail for good.
require "sidekiq"

class RateMissing < StandardError; end

module Billing
  class ChargeJob
    include Sidekiq::Worker
    sidekiq_options queue: "critical", retry: 0, backtrace: true

    def perform(invoice, options)
      raise RateMissing, "no rate for #{options["currency"]} of invoice #{invoice}"
    end
  end
end

class HardWorker
  include Sidekiq::Worker

  def perform(*) = nil
end

if $PROGRAM_NAME == __FILE__
  Billing::ChargeJob.perform_async(17, {"currency" => "XAU"})
  Billing::ChargeJob.perform_async(18, {"currency" => "XAG"})
  HardWorker.perform_async(19)
  HardWorker.perform_in(3600, 20)
end
