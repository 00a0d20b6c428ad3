-- Columns that only functions read, which have other tables now: full_scans and limit_paces.
-- serves: 1

alter table redrive.lanes drop column full_scan_at, drop column full_scan_kinds;
alter table redrive.limit_keys drop column next_at, drop column placed_at;
