-- concurrently: a table of any size is read for it
-- serves: 1
-- The lines of the audit log that are marks of a time axis, found without the others.
drop index concurrently if exists redrive.audit_marks_idx;
create index concurrently audit_marks_idx on redrive.audit (at) where action in (
    'redrive', 'end redrive', 'abort redrive', 'cancel redrive', 'pause redrive', 'resume redrive',
    'pause', 'resume', 'force breaker', 'reset breaker', 'set limit', 'remove limit', 'edit',
    'purge', 'pause schedule', 'resume schedule', 'run schedule');
