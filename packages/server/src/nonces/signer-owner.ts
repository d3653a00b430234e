/**
 * Which instance a signer belongs to: the one with the highest hash of the two together. Every instance that sees
 * the same list chooses alike without asking anybody, and one that leaves moves only its own signers.
 */
export function ownerOf(signer: string, instanceIds: readonly string[]): string | undefined {
  let best: { instanceId: string; weight: number } | undefined;
  for (const instanceId of instanceIds) {
    const weight = hash(`${instanceId}\n${signer}`);
    if (!best || weight > best.weight || (weight === best.weight && instanceId > best.instanceId)) {
      best = { instanceId, weight };
    }
  }
  return best?.instanceId;
}

/** FNV-1a, then murmur's finalizer: the first alone leaves texts that differ only at the end close together. */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    h = Math.imul(h ^ text.charCodeAt(index), 0x01000193);
  }
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
