-- reads_texts: return true if the caller may read what people and payloads say.
-- These are the roles that may read the audit log. In a function of the owner, current_user is the
-- owner, and SET ROLE does not change session_user.
create or replace function redrive.reads_texts_v1() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
return has_table_privilege(
    coalesce(nullif(current_setting('role'), 'none'), session_user::text), 'redrive.audit',
    'select');
