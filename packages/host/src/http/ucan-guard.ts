import { type CanActivate, type ExecutionContext, Injectable, SetMetadata } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { PublicRoutes } from '@sibyl/plugin-kit/rules';
import type { Request, Response } from 'express';
import { Authenticator, proveCaller } from '../auth/authenticator.js';
import { type Caller, readCredentials } from '../auth/caller.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { PresentedDelegations } from '../auth/presented-delegations.js';
import { RateLimits } from '../auth/rate-limits.js';

/** Lets a request in only with a proven caller; public routes do not even parse credentials. */
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
    const { authenticator, limits } = this;
    const { ip: address, isCounted } = request;
    // From here on the guard counts it.
    request.isCounted = true;
    if (this.isPublic(context)) {
      // Where nobody reads credentials, bringing some spares nobody the limit.
      if (!isCounted) limits.takeAnonymous(address, response);
      return true;
    }
    const credentials = readCredentials(request.headers);
    request.caller = await proveCaller(
      { authenticator, limits },
      { credentials, address, headers: response, isCounted },
    );
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

/** Refuses proven callers whom the operator does not admit; runs after UcanGuard and its limits. */
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
    // Without a caller it is a public route: UcanGuard lets no other request pass without one.
    if (!caller) return true;
    const isOpen = this.reflector.get<boolean>(OPEN_TO_UNINVITED, context.getHandler());
    if (!isOpen) await this.allowList.assertAllowed(caller.did);
    // Nothing is stored on behalf of callers who are not admitted.
    if (caller.login && (await this.allowList.isAllowed(caller.did)))
      await this.presented.record(caller.login);
    return true;
  }
}

export const PUBLIC_ROUTE = Symbol('public route');

/** Opens a controller or handler to callers without a UCAN. */
export const Public = () => SetMetadata(PUBLIC_ROUTE, true);

const OPEN_TO_UNINVITED = Symbol('open to uninvited callers');

/** Opens a protected handler to proven callers whom CALLERS_ALLOW does not admit. */
export const OpenToUninvited = () => SetMetadata(OPEN_TO_UNINVITED, true);

/** A request on its way through the host. */
export interface OracleRequest extends Request {
  requestId: string;
  /** Set once the caller is proven; absent on public routes. */
  caller?: Caller;
  /** Whether the limit of those without a proven caller has been applied, or need not be. */
  isCounted?: boolean;
}

/** A request the guard has let in on a protected route. */
export type ProvenRequest = OracleRequest & { readonly caller: Caller };
