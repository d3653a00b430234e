/** An IPv4 address, or the /64 of an IPv6 address: a subscriber has at least that many to choose from. */
export function addressGroup(address: string): string {
  if (!address.includes(":")) return address;
  const [head = "", tail] = address.split("::");
  const groups = head === "" ? [] : head.split(":");
  if (tail !== undefined) {
    const missing = 8 - groups.length - (tail === "" ? 0 : tail.split(":").length);
    groups.push(...Array(Math.max(missing, 0)).fill("0"));
    if (tail !== "") groups.push(...tail.split(":"));
  }
  return `${groups.slice(0, 4).join(":")}::/64`;
}
