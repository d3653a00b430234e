/**
 * Shortens an id for tables. UUIDs show their end, which is random (the beginning is a time); keys and sessions show
 * both ends.
 */
export function shortId(id: string): string {
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-/.test(id)) return `…${id.slice(-8)}`;
  const [, head = "", address] = /^(.*:)?(0x[0-9a-f]{40})$/i.exec(id) ?? [];
  if (address) return `${head}${address.slice(0, 6)}…${address.slice(-4)}`;
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}
