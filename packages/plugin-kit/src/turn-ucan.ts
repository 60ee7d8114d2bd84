/** What caveats may hold. */
export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/** Something a caller may do: an ability at a resource. */
export interface WantedCapability {
  readonly can: string;
  readonly with: string;
}

/** What to mint: the capability, the service it is for, and how it may be narrowed. */
export interface MintRequest extends WantedCapability {
  /** DID of the service that will receive the invocation. */
  readonly audience: string;
  readonly nb?: { readonly [caveat: string]: JsonValue };
  readonly ttlSeconds?: number;
}

/** What the user's delegation lets the oracle do elsewhere, during one turn. */
export interface TurnUcan {
  /** Whether this oracle has a key to sign with under its DID. */
  hasSigningKey(): boolean;
  hasCapability(wanted: WantedCapability): Promise<boolean>;
  /** Throws, saying what the user would have to delegate. */
  requireCapability(wanted: WantedCapability): Promise<void>;
  /** A base64 CAR for the service, with the user's delegation as its proof. */
  mintInvocation(request: MintRequest): Promise<string>;
  /** The DID that the service at this configured address answers for. */
  resolveServiceDid(serviceUrl: string): Promise<string>;
}
