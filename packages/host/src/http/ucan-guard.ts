import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { type CanActivate, type ExecutionContext, Injectable, SetMetadata } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { OracleError, type Route } from '@sibyl/plugin-kit';
import {
  ACCESS_KEY_ROUTE,
  ORIGIN_CHECKED_ROUTE,
  OWN_KEY_ROUTE,
  PublicRoutes,
  ROUTE_ERROR_FORMAT,
  WORK_ROUTE,
} from '@sibyl/plugin-kit/host';
import type { RouteError } from '@sibyl/plugin-kit/surface';
import { hasShortHost } from '@sibyl/protocol';
import { toAddressKey } from '@sibyl/server-kit';
import type { Request, Response } from 'express';
import {
  Authenticator,
  narrowToRequest,
  PresentedDelegations,
  proveCaller,
  readAccessKey,
  readCredentials,
} from '../auth/authenticator.js';
import type { ProvenCaller } from '../auth/caller.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import { Turns } from '../turns/turns.js';

/** Which pages may call routes that check it. */
export class OriginPolicy {
  constructor(
    private readonly config: Pick<Config, 'host' | 'corsOrigins' | 'publicUrl' | 'trustProxy'>,
  ) {}

  /** A request without an origin is not from a page, or it is one that cannot have an effect. */
  allows({ origin, host }: IncomingHttpHeaders): boolean {
    const { corsOrigins, publicUrl } = this.config;
    if (origin === undefined || corsOrigins.includes(origin)) return true;
    const page = hasShortHost(origin) ? (URL.parse(origin) ?? undefined) : undefined;
    if (page?.host === host) return this.isOwnName(page?.hostname ?? '');
    return corsOrigins.includes('*') || page?.origin === new URL(publicUrl).origin;
  }

  /**
   * A name of another website can lead to this machine. A host that only this machine reaches, without a proxy in front of it, has
   * no other names than those of the machine.
   */
  private isOwnName(name: string): boolean {
    const { host, publicUrl, trustProxy } = this.config;
    if (!isLoopback(host) || trustProxy !== undefined) return true;
    return isLoopback(name.replace(/^\[|\]$/g, '')) || name === new URL(publicUrl).hostname;
  }
}

/** Whether a name or address is that of this machine. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

/** Refuses pages before it is known who calls; runs before all other guards. */
@Injectable()
export class OriginGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly policy: OriginPolicy,
  ) {}

  canActivate(context: ExecutionContext): boolean {
    if (context.getType() !== 'http') return true;
    const request = context.switchToHttp().getRequest<OracleRequest>();
    const handler = context.getHandler();
    request.formatError = this.reflector.get(ROUTE_ERROR_FORMAT, handler);
    const isChecked = this.reflector.get<boolean>(ORIGIN_CHECKED_ROUTE, handler) === true;
    if (!isChecked || this.policy.allows(request.headers)) return true;
    throw new OracleError('origin_not_allowed');
  }
}

/** Refuses new work that this host has no time for, before it is known who sends it: proving that would take most of the time. */
@Injectable()
export class LoadGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly turns: Turns,
    private readonly limits: RateLimits,
  ) {}

  canActivate(context: ExecutionContext): boolean {
    if (context.getType() !== 'http') return true;
    const startsWork = this.reflector.get<Route['startsWork']>(WORK_ROUTE, context.getHandler());
    if (!startsWork) return true;
    const http = context.switchToHttp();
    const request = http.getRequest<OracleRequest>();
    if (typeof startsWork === 'function') {
      request.startWork = (count) => this.start(count, request, http.getResponse());
      return true;
    }
    try {
      const address = toAddressKey(request.ip);
      this.turns.assertPrompt({ address, isKnown: this.limits.holders.hasKnown(address) });
      return true;
    } catch (error) {
      // It must not use up what its address may send without credentials.
      request.isCounted = true;
      throw error;
    }
  }

  /** For work that only the body names. */
  private start(count: number, { caller }: OracleRequest, response: Response): void {
    if (!caller) return;
    for (let i = 0; i < count; i++) {
      this.turns.assertPrompt(caller.holder);
      this.limits.takeWork(caller.holder, response);
    }
  }
}

/** Authenticates callers; public routes do not parse credentials at all. */
@Injectable()
export class UcanGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly publicRoutes: PublicRoutes,
    private readonly authenticator: Authenticator,
    private readonly limits: RateLimits,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true;
    const request = context.switchToHttp().getRequest<OracleRequest>();
    const response = context.switchToHttp().getResponse<Response>();
    const { limits } = this;
    const { ip: address, isCounted } = request;
    // The guard counts the request from here on.
    request.isCounted = true;
    if (this.isPublic(context)) {
      // Credentials that are not read must not exempt a request from the limit.
      if (!isCounted) limits.takeAnonymous(address, response);
      return true;
    }
    const handler = context.getHandler();
    const acceptsKeys = this.reflector.get<boolean>(ACCESS_KEY_ROUTE, handler) === true;
    const accessKey = acceptsKeys ? readAccessKey(request.headers) : undefined;
    const credentials = { ...readCredentials(request.headers), accessKey };
    const isForOperators = this.reflector.get<boolean>(OPERATOR_ROUTES, context.getClass());
    // The revocations of delegations are not known without the store, so only own logins of operators count.
    const { forOperators = this.authenticator } = this.authenticator;
    const authenticator =
      isForOperators && credentials.invocation !== undefined ? forOperators : this.authenticator;
    const caller = await proveCaller(
      { authenticator, limits },
      { credentials, address, headers: response, isCounted },
    ).catch((error: unknown) => {
      throw acceptsKeys ? mentionKeys(error) : error;
    });
    if (this.reflector.get<Route['startsWork']>(WORK_ROUTE, handler) === true)
      limits.takeWork(caller.holder, response);
    const key = caller.accessKey && narrowToRequest(caller.accessKey, request.headers);
    request.caller = key ? { ...caller, accessKey: key } : caller;
    return true;
  }

  private isPublic(context: ExecutionContext): boolean {
    const targets = [context.getHandler(), context.getClass()];
    const { method, route } = context.switchToHttp().getRequest<OracleRequest>();
    return (
      this.reflector.getAllAndOverride<boolean>(PUBLIC_ROUTE, targets) ||
      this.publicRoutes.includes(method, String(route?.path))
    );
  }
}

/** Users of clients of other protocols have access keys. */
function mentionKeys(error: unknown): unknown {
  const isMissing = error instanceof OracleError && error.code === 'missing_authentication';
  return isMissing
    ? new OracleError(error.code, { message: `${error.message}. ${WITH_KEY}` })
    : error;
}

const WITH_KEY =
  'With an access key of this oracle: Authorization: Bearer <key>, without X-Auth-Type, or X-Api-Key: <key>';

/**
 * Rejects authenticated callers that CALLERS_ALLOW does not allow, and logins by delegation where a route needs more; runs
 * after UcanGuard and its limits.
 */
@Injectable()
export class CallerGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly allowList: CallerAllowList,
    private readonly presented: PresentedDelegations,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true;
    const { caller } = context.switchToHttp().getRequest<OracleRequest>();
    // Without a caller this is a public route: UcanGuard rejects all other requests.
    if (!caller) return true;
    // The guard of operator routes decides alone: an operator needs no invitation.
    const isOpen =
      this.reflector.get<boolean>(OPEN_TO_UNINVITED, context.getHandler()) ||
      this.reflector.get<boolean>(OPERATOR_ROUTES, context.getClass());
    if (!isOpen) await this.allowList.assertAllowed(caller.did);
    // Nothing is stored on behalf of callers that are not allowed.
    if (caller.login && (await this.allowList.isAllowed(caller.did)))
      await this.presented.record(caller.login);
    if (caller.login && this.reflector.get(OWN_KEY_ROUTE, context.getHandler()) === true)
      throw new OracleError('own_key_required');
    return true;
  }
}

export const PUBLIC_ROUTE = Symbol('public route');

/** Opens a controller or handler to callers without a UCAN. */
export const Public = () => SetMetadata(PUBLIC_ROUTE, true);

const OPEN_TO_UNINVITED = Symbol('open to uninvited callers');

/** Opens a handler to authenticated callers that CALLERS_ALLOW does not allow. */
export const OpenToUninvited = () => SetMetadata(OPEN_TO_UNINVITED, true);

const OPERATOR_ROUTES = Symbol('routes of operators');

/** Marks a controller for operators, whose guard knows them also while the store does not answer. */
export const ForOperators = () => SetMetadata(OPERATOR_ROUTES, true);

export interface OracleRequest extends Request {
  requestId: string;
  /** Set once the caller is authenticated; absent on public routes. */
  caller?: ProvenCaller;
  /** The errors of the route, if it has its own. */
  formatError?: ((error: RouteError) => unknown) | undefined;
  /** Whether the limit of unauthenticated requests has been applied, or does not apply. */
  isCounted?: boolean;
  /** Set where the body says how much work the request starts. */
  startWork?: (count: number) => void;
}

/** An authenticated request. */
export type ProvenRequest = OracleRequest & { readonly caller: ProvenCaller };
