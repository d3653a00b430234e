import { ANY_TENANT, type Member, serves, sharesTenant } from "@tenure/protocol";
import type { MemberChange } from "./members-view.ts";

// A node-unit sees only members that share a tenant with it, and only those of their tenants that it serves as well.

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

/** The part of a change that such a node may see. It may be empty: the numbers of changes never skip. */
export function changeFor(change: MemberChange, tenants: readonly string[]): MemberChange {
  const now = change.new && memberFor(change.new, tenants);
  const old = change.old && memberFor(change.old, tenants);
  return { ...(now && { new: now }), ...(old && { old }) };
}
