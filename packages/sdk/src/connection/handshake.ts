/** The first messages on a new socket. Resolves when the connection is ready; a rejection ends it. */
export type Handshake<In extends Typed, Out, Ack> = (greeting: Greeting<In, Out>) => Promise<Ack>;

export interface Greeting<In extends Typed, Out> {
  send(message: Out): void;
  /**
   * Resolves to the next message of this type. Messages of other types wait until the connection is ready. Rejects with
   * the server's `error`, or with the reason for which the connection ended.
   */
  expect<T extends In["type"]>(type: T): Promise<Extract<In, { type: T }>>;
}

interface Typed {
  type: string;
}

/** A server may send events right after its acknowledgement, but not without limit. */
const WAITING_MAX = 256;

export interface Inbox<In extends Typed> {
  /** False when too many messages wait. */
  push(message: In): boolean;
  expect: Greeting<In, never>["expect"];
  fail(error: Error): void;
  /** Messages that the handshake did not expect, in order. */
  rest(): In[];
}

/** Messages that arrive during the handshake: for the handshake itself, or for later. */
export function createInbox<In extends Typed>(): Inbox<In> {
  let waiting: In[] = [];
  let failure: Error | undefined;
  let wake: () => void = () => {};

  return {
    push(message) {
      waiting.push(message);
      wake();
      return waiting.length <= WAITING_MAX;
    },
    async expect<T extends In["type"]>(type: T) {
      for (;;) {
        const index = waiting.findIndex((message) => message.type === type);
        if (index >= 0) return waiting.splice(index, 1)[0] as Extract<In, { type: T }>;
        if (failure) throw failure;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
    fail(error) {
      failure ??= error;
      wake();
    },
    rest() {
      const messages = waiting;
      waiting = [];
      return messages;
    },
  };
}
