import type { Member } from "@tenure/protocol";

const texts = new WeakMap<Member, string>();

/** The member as JSON, serialized once for all pages, changes and readers. */
export function memberJson(member: Member): string {
  const known = texts.get(member);
  if (known !== undefined) return known;
  const text = JSON.stringify(member);
  texts.set(member, text);
  return text;
}
