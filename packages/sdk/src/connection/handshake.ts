/** The first words on a new socket. Resolves when the connection may be used; a throw ends it. */
export type Handshake<In extends Typed, Out, Ack> = (greeting: Greeting<In, Out>) => Promise<Ack>;

export interface Greeting<In extends Typed, Out> {
  send(message: Out): void;
  /**
   * The next message of this type. Messages of other types wait until the connection is ready. Throws the
   * server's `error`, or what else ended the connection.
   */
  expect<T extends In["type"]>(type: T): Promise<Extract<In, { type: T }>>;
}

interface Typed {
  type: string;
}

/** A server may tell what happened meanwhile right behind its acknowledgement, but not its whole life. */
const WAITING_MAX = 256;

export interface Inbox<In extends Typed> {
  /** False when too much is waiting. */
  push(message: In): boolean;
  expect: Greeting<In, never>["expect"];
  fail(error: Error): void;
  /** What nobody asked for during the handshake, in order. */
  rest(): In[];
}

/** What arrived during the handshake: for the handshake, or for later. */
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
