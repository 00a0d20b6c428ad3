-- A reason in the audit log says something. Each change that has one writes it there.
-- serves: 1

-- Lines that are there are not scanned, because the log may be large.
alter table redrive.audit add constraint audit_why_said check (why ~ '\S') not valid;
