-- person: return the form of a name in which two names of one person are equal.
-- Case, width, accents and blanks do not count, and neither do characters that nobody sees. Letters of
-- other alphabets count as the Latin letters that look the same. Each pair is written out, because
-- what lower() knows depends on the locale of the database.
create or replace function redrive.person_v1(name text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select translate(lower(regexp_replace(
        normalize(name, nfkd), '[\s\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0]',
        '', 'g')),
        'АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЅІЈҺԀԚԜΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧ'
        || 'ΨΩØŁавекмнорстухѕіјһԁԛԝαβεζηικμνορτυχıɑɡøłßς',
        'aбbгдeжзиkлmhoпpctyфxцчшщъыьэюяsijhdqwabγδezhθikλmnξoπpσtyφx'
        || 'ψωolabekmhopctyxsijhdqwabezhikmnoptyxiagolsσ')
$$;
