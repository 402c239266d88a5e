/// <reference lib="esnext.disposable" />

/** A request in the journal of the operations listener. */
export interface RecordedRequest {
  id: number;
  time: string;
  operation: string | null;
  method: string;
  path: string;
  /** Status of the response, even if it was not sent. `null` if there was none. */
  status: number | null;
  code: string | null;
  keyId: number;
  idempotencyKey: string | null;
  simulated: string | null;
  replayed: boolean;
  incomplete: boolean;
  durationMs: number;
  requestId: string;
  request: { head: string | null; body: string | null };
  response: { head: string | null; body: string | null };
}

/** A staging store in a temporary folder. It ends with this process, or before at `stop`. */
export interface Store extends AsyncDisposable {
  /** Base URL of the store API, with `/v1`. */
  readonly url: string;
  /** Base URL of the messages API, with `/v1`. */
  readonly messagesUrl: string;
  /** URL of the operations listener. */
  readonly opsUrl: string;
  readonly consoleUrl: string;
  /** API key of the staff. */
  readonly key: string;
  /** API key of the customer. */
  readonly customerKey: string;
  /** API keys of the staff by the names of `--prefer NAME=PREFERENCES`. */
  readonly keys: Readonly<Record<string, string>>;
  /** Addresses of the staff and the customer, and the password of both, for the console. */
  readonly email: string;
  readonly customerEmail: string;
  readonly password: string;
  /** Folder of the database, for commands such as `petstore orders list --data-dir`. */
  readonly dataDir: string;
  /** Process id of the store. */
  readonly pid: number;
  /** Creates an API key whose requests fail as `preferences` say, such as `"code=503, first=2"`. */
  failingKey(preferences: string): Promise<string>;
  /**
   * Returns the requests of the account of `key`, by default that of the staff, oldest first. Rejects if the store no longer
   * has all of them, because counts would be wrong.
   */
  requests(key?: string): Promise<RecordedRequest[]>;
  /**
   * Deletes orders, messages and recorded requests, and replaces all animals by the first 30. With `"--empty"` there are
   * none, with `"--pets"` and a path those of this file.
   */
  reset(...options: string[]): Promise<void>;
  /** Ends the store and waits until its folder is gone. */
  stop(): Promise<void>;
}

/** Starts `petstore ephemeral` with these options, and waits until it is ready. */
export function startStore(...options: string[]): Promise<Store>;
