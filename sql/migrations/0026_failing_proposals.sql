-- Agents may also propose changes of the failing jobs of a group.
-- serves: 1

alter table redrive.proposals drop constraint proposals_action_check;
alter table redrive.proposals add constraint proposals_action_check
    check (action in ('edit', 'mute', 'retry', 'hold', 'release', 'give-up')
           and (action in ('edit', 'mute') or detail ->> 'group' is not null));
