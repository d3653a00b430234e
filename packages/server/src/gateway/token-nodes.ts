/** The nodes connected to this instance, by their token. Bounds how many nodes one token may connect here. */
export class TokenNodes {
  /** By token and address: how many sockets. A node that reconnects has two for a moment, and counts once. */
  readonly #sockets = new Map<string, Map<string, number>>();

  /** False when the token has `max` other nodes connected already. Otherwise the socket counts until `leave`. */
  enter(token: string, address: string, max: number): boolean {
    const nodes = this.#sockets.get(token) ?? new Map<string, number>();
    if (!nodes.has(address) && nodes.size >= max) return false;
    this.#sockets.set(token, nodes.set(address, (nodes.get(address) ?? 0) + 1));
    return true;
  }

  leave(token: string, address: string): void {
    const nodes = this.#sockets.get(token);
    const sockets = (nodes?.get(address) ?? 0) - 1;
    if (sockets > 0) nodes?.set(address, sockets);
    else nodes?.delete(address);
    if (nodes?.size === 0) this.#sockets.delete(token);
  }
}
