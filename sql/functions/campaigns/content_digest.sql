-- content_digest: return a digest of what a job does: its payload and its headers.
-- A plan keeps it for each dead letter, so that an approval is one of values.
create or replace function redrive.content_digest_v1(payload jsonb, headers jsonb) returns bytea
language sql immutable parallel safe
return sha256(convert_to(payload::text || headers::text, 'UTF8'));
