import { ANY_TENANT, type Member, serves, sharesTenant } from "@tenure/protocol";
import type { MemberChange } from "./members-view.ts";

// A node-unit hears only of those that share a tenant with it, and of their tenants only those that it serves as well.

/** The member as a node that serves these tenants may see it; `undefined` when it may not. */
export function memberFor(member: Member, tenants: readonly string[]): Member | undefined {
  if (!sharesTenant(member.tenants, tenants)) return undefined;
  const shown = member.tenants?.filter(
    (tenant) => tenant === ANY_TENANT || serves(tenants, tenant),
  );
  return shown ? { ...member, tenants: shown } : member;
}

export const membersFor = (members: readonly Member[], tenants: readonly string[]): Member[] =>
  members.flatMap((member) => memberFor(member, tenants) ?? []);

/** What of a change such a node hears. It may be empty: the numbers of changes never skip. */
export function changeFor(change: MemberChange, tenants: readonly string[]): MemberChange {
  const now = change.new && memberFor(change.new, tenants);
  const old = change.old && memberFor(change.old, tenants);
  return { ...(now && { new: now }), ...(old && { old }) };
}
